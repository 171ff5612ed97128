"""Plays the same raw requests to a broker's own listener and to a sidecar, and compares the answers.

A case (cases.py) is a state of a group (states.py), a correct request (requests.py) and changes of its fields
(values.py): each odd value of each field, or two of them at once, which shows the order of the checks. The codec
(schema.py) is made from Kafka's message JSON, and shares nothing with the product's.
"""
