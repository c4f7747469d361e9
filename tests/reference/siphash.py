"""SipHash-2-4 of bytes, as its authors wrote it down (Aumasson and Bernstein, 2012)."""

from __future__ import annotations

WORD = 2**64


def siphash(key: bytes, message: bytes) -> int:
    k0, k1 = (int.from_bytes(key[i : i + 8], "little") for i in (0, 8))
    v = [
        k0 ^ 0x736F6D6570736575,
        k1 ^ 0x646F72616E646F6D,
        k0 ^ 0x6C7967656E657261,
        k1 ^ 0x7465646279746573,
    ]

    def rotated(word: int, bits: int) -> int:
        return (word << bits | word >> 64 - bits) % WORD

    def one_round() -> None:
        v[0] = (v[0] + v[1]) % WORD
        v[1] = rotated(v[1], 13) ^ v[0]
        v[0] = rotated(v[0], 32)
        v[2] = (v[2] + v[3]) % WORD
        v[3] = rotated(v[3], 16) ^ v[2]
        v[0] = (v[0] + v[3]) % WORD
        v[3] = rotated(v[3], 21) ^ v[0]
        v[2] = (v[2] + v[1]) % WORD
        v[1] = rotated(v[1], 17) ^ v[2]
        v[2] = rotated(v[2], 32)

    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) % 256])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        one_round()
        one_round()
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(4):
        one_round()
    return v[0] ^ v[1] ^ v[2] ^ v[3]
