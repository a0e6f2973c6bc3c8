"""All scenarios, in the order in which they run."""
import kills
import stops
import flips
import hostile
import limits
import disks
import groups
import soak
from trial import SCENARIOS

__all__ = ["SCENARIOS", "kills", "stops", "flips", "hostile", "limits", "disks", "groups", "soak"]
