"""`python -m portalctl`."""

from portalctl.main import main

raise SystemExit(main())
