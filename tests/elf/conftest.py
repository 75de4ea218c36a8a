"""Makes `elfmaker` importable by the tests of this folder whatever the working directory."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
