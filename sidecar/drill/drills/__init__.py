"""Failover drills on real processes: `sidecar drill NAME --n N`, or `make drill NAME=... N=...`.

A drill is a fault and how it heals; `spec.py` says what a drill must give. `ground.py` holds what it is played on, the
cluster and the clients; `run.py` plays the rounds, `measure.py` takes the times, `judge.py` says what was lost.
"""
