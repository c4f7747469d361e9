"""A process that is killed at its n-th change of a file."""

#: Put before a program for `python -c`; the first argument is n. With 0 the process is not killed,
#: and prints how many changes it made when it ends. Changes that libraries make without Python are
#: not counted.
KILL_AT_CHANGE = """
import atexit, os, signal, sys
last, made, own = int(sys.argv.pop(1)), 0, os.getpid()
changes = {"os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.link", "os.chmod", "os.truncate"}
def count(event, values):
    global made
    writes = event == "open" and isinstance(values[2], int) and values[2] & (os.O_WRONLY | os.O_RDWR)
    if (event in changes or writes) and os.getpid() == own:
        made += 1
        if made == last:
            os.kill(own, signal.SIGKILL)
sys.addaudithook(count)
if not last:
    atexit.register(lambda: print("changes:", made))
"""
