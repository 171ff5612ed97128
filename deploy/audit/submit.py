"""What spark-submit starts: it takes a file, and the command `sidecar` is none.

spark-submit --master spark://HOST:7077 deploy/audit/submit.py run --from kafka://HOST:PORT --lake FOLDER
"""

import sys

from sidecar.cli.main import app

app(["audit", *sys.argv[1:]])
