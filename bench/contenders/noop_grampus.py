"""Start two workers, run a no-op on each, stop."""

import grampus as gp

gp.init(workers=2)
gp.run(lambda: None)
gp.stop()
