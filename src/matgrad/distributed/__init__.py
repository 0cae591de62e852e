"""Several processes, also on several machines, that train one model as one process would: the group of ranks."""

from matgrad.distributed.group import Collectives, Disagreement, Group, current, is_first, start

__all__ = ["Collectives", "Disagreement", "Group", "current", "is_first", "start"]
