"""Load on the gateway over the loopback interface: errors, time, memory.

`python -m crp_integrations.bench.gateway --minutes 5 --at-once 32`
"""
