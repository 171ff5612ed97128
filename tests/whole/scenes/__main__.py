"""python -m tests.whole.scenes owner_dies [--seed 3]"""

from __future__ import annotations

import argparse
import sys

from tests.whole.many import quiet
from tests.whole.scenes import SCENES, act
from tests.whole.violation import Violation


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("scene", choices=SCENES)
    ap.add_argument("--seed", type=int, default=0)
    a = ap.parse_args()
    quiet()
    try:
        act(SCENES[a.scene], a.seed, tell=print)
    except Violation as exc:
        print(f"{a.scene}, seed {a.seed}: {exc}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
