"""The real front and coordinator inside one process, over brokers, sockets and a log that live in memory.

Only the edges are false: what a broker answers (`broker.py`, with its partitions in `log.py` and the owners' group in
`owners.py`), the connections to it (`cluster.py`), the thread that tails the state topic (`tail.py`), and the sockets
of clients (`transport.py`). Everything between them is the code that runs against Apache Kafka: requests are really
encoded, batches really decoded, and sequence numbers and epochs are judged as a broker judges them. `faults.py` says
what can go wrong on purpose.

`embedded_sidecar.py` puts a whole sidecar together, `embedded_front.py` a front whose coordinator is the test. Time is
virtual (`clock.py`).
"""
