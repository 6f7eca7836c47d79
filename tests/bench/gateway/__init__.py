"""Load on the gateway over the loopback interface: errors, time, memory.

`python -m tests.bench.gateway --minutes 5 --at-once 32`
"""
