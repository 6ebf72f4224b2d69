"""The laws for algorithms.

A check takes a `Subject`. It returns the reason why the law holds, or yields lines of the table. It
raises CheckFailed if the law is broken, NotClaimed if the law does not apply.
"""
