"""The audit once an hour, as an Airflow DAG. The workers need Java and `pip install 'kafka-group-sidecar[audit]'`.

Exit code 1 means findings and fails the task; 4 means that history is missing, which skips what comes after it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

SOURCE = "kafka://broker-1:9094,broker-2:9094"
LAKE = "/var/lib/group-audit"

with DAG(
    dag_id="group_state_audit",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,  # two would do the same work twice
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
) as dag:
    # A batch that was broken off is ended by the next attempt: nothing is read twice.
    audit = BashOperator(
        task_id="audit",
        bash_command=f"sidecar audit run --from {SOURCE} --lake {LAKE} -o json",
        skip_on_exit_code=4,
    )
    check = BashOperator(task_id="check", bash_command=f"sidecar audit check --lake {LAKE}")
    report = BashOperator(
        task_id="report",
        bash_command=f"sidecar audit report --lake {LAKE} --out {LAKE}/report.html",
        trigger_rule="all_done",
    )
    maintain = BashOperator(
        task_id="maintain", bash_command=f"sidecar audit maintain --lake {LAKE}", trigger_rule="all_done"
    )
    audit >> [check, report, maintain]
