"""Failover drills on real processes: `sidecar drill NAME --n N`, or `make drill NAME=... N=...`.

A drill is a fault and its healing; `spec.py` has the interface. `ground.py` has the cluster and the clients; `run.py`
plays the rounds, `measure.py` takes the times, `judge.py` finds losses.
"""
