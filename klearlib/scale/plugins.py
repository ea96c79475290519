"""All of ours that verl finds by name: named in ``VERL_USE_EXTERNAL_MODULES``, which every process
of verl imports before it does anything; what does not load ends that process with its error."""

from klearlib.scale import agent_loop, policy_losses, trainer

__all__ = ["agent_loop", "policy_losses", "trainer"]
