"""`python -m s3jax`: the same as the `s3jax` command."""

import sys

from s3jax.cli import main

sys.exit(main())
