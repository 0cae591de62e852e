"""matgrad: multilayer perceptrons in batch matrix form, from one source of equations.

The public names are those of the stub beside this file; each is imported when it is first asked for.
"""

import lazy_loader

__version__ = "0.4.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
