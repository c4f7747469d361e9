"""What may leave: the rules that decide what a release says of the trips that it does not publish.

Read this folder to judge whether a release is safe beyond its cells. Every cell satisfies the guarantee, which is
counted in `flowveil.release`; here it is decided what else may be said.

- `withholding`: which measures are withheld, for each matrix and for all together, and why.
- `unlisted`: whether a total would reveal what the pairs of zones hold that are not listed.
- `subtraction`: what can be learnt by subtracting matrices of one command from each other.
- `confirmation`: what is refused unless it is confirmed: guarantees that hide too few, weaker releases.

The reasoning, case by case, is in ``docs/threat-model.md``; `flowveil.verify` decides the same anew from the files.
"""
