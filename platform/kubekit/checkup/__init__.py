"""What a cluster offers, line by line: pure verdicts on what was read (`facts`) and on what was tried (`tried`).

Reading and trying are the caller's business; `kubekit.build.probe` makes what is put up for a trial. A `Line` holds a
code and parameters, and where there is one the command that mends what is missing; the sentences are the caller's.
"""

from kubekit.checkup.model import Line, Result

__all__ = ["Line", "Result"]
