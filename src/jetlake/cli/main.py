"""The entry point of the installed script `jetlake`.

`serve` is run without the commands' framework, which takes longer to import than the server takes to start.
"""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Run the command line."""
    if sys.argv[1:2] == ["serve"]:
        gc.disable()  # what is imported stays; `Server.run` turns it on
        from jetlake.server.main import main as serve

        sys.exit(serve(sys.argv[2:], dict(os.environ)))
    from jetlake.cli.app import app

    app()


if __name__ == "__main__":
    main()
