"""The checks behind validate.py.

spec.json ─spec─▶ what the stack promises ─runner─▶ a worker process per check (or per unit of a
check) ─worker─▶ results, as events in a file ─report─▶ report.json

A check is a module with
    LIMIT       seconds one step of it may take without a sign of life
    ISOLATED    True: every unit in a process of its own
    units(spec, device)          what it will run, by name; runs in the parent, imports nothing
    obstacle(spec, device)       None, or (status, reason) why nothing can be run
    facts(spec, device)          more keys for the check's entry in the report
    run(unit, job)               runs in the worker; returns the unit's result
A check is known by MODULES (worker.py), CHECKS (spec.py) and the catalog's `Check`.

A result is a dict with "name" and "status", and unless it passed, "reason".
"""
