"""Several processes, also on several machines, that train one model as one process would: the group of ranks."""

from matgrad.distributed.group import Group, current, using

__all__ = ["Group", "current", "using"]
