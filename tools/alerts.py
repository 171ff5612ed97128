"""Writes the alerts of deploy/prometheus: the rules, and promtool's unit tests of them.

`python -m tools.alerts`, from the repository's root. tools/alert_rules.py has the alerts.

`python -m tools.alerts --runbook URL` prints the rules for who has the runbook at that address: what a pager shows then
is a link.
"""

from __future__ import annotations

import argparse

from tools.alert_rules import RULES, TESTS, rules
from tools.alert_tests import tests


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runbook", metavar="URL", help="where docs/operate/runbook.md is; the rules are printed")
    runbook = parser.parse_args().runbook
    if runbook:
        print(rules(runbook), end="")
        return
    RULES.parent.mkdir(parents=True, exist_ok=True)
    RULES.write_text(rules())
    TESTS.write_text(tests())


if __name__ == "__main__":
    main()
