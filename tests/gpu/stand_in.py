"""A device that stands in for a GPU where there is none: its numbers are a CPU's, its type is not
``cpu``, and a tensor that was left on the CPU is refused among its own, as by CUDA."""

import importlib
from types import SimpleNamespace

import torch
from torch.utils import backend_registration
from torch.utils._pytree import tree_leaves, tree_map

NAME = "standin"
aten = torch.ops.aten


class OnDevice(torch.Tensor):
    """A tensor of the device; `held` has its numbers."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=torch.device(NAME, 0),
        )

    def __init__(self, held):
        self.held = held

    def tolist(self):
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(cls, operator, types, args=(), kwargs=None):
        return run(operator, *args, **kwargs or {})


def numbers(value):
    return value.held if isinstance(value, OnDevice) else value


def run(operator, *args, **kwargs):
    """What `operator` gives on a CPU, where its result belongs."""
    given, target = tree_leaves((args, kwargs)), kwargs.get("device")
    moves = operator is aten._to_copy.default
    if operator is aten.copy_.default:
        numbers(args[0]).copy_(numbers(args[1]))
        return args[0]
    if moves and target is not None and target.type == "cpu":
        return operator(args[0].held, **kwargs).clone()
    for each in given:
        on_cpu = isinstance(each, torch.Tensor) and not isinstance(each, OnDevice)
        if on_cpu and each.dim() and not moves:
            raise RuntimeError(f"{operator} mixes tensors of the CPU and of a device")
    if operator is aten.mm.dtype:  # which a CPU does not have
        wide = [numbers(each).to(args[2]) for each in args[:2]]
        return OnDevice(torch.mm(*wide))
    own = {id(each.held): each for each in given if isinstance(each, OnDevice)}

    def inside(value):
        if isinstance(value, torch.device) and value.type == NAME:
            return torch.device("cpu")
        return numbers(value)

    def outside(value):
        if not isinstance(value, torch.Tensor):
            return value
        return own[id(value)] if id(value) in own else OnDevice(value)

    found = operator(*tree_map(inside, args), **tree_map(inside, kwargs))
    return tree_map(outside, found)


class Module:
    """What torch asks of the module of a device."""

    is_available = is_initialized = staticmethod(lambda: True)
    _is_in_bad_fork = staticmethod(lambda: False)
    current_device = staticmethod(lambda: 0)
    device_count = staticmethod(lambda: 1)
    manual_seed_all = staticmethod(lambda seed: None)
    get_amp_supported_dtype = staticmethod(lambda: [torch.bfloat16])


def autocast_of(name: str):
    """The cast of a GPU's autocast before the product `name`."""
    product = getattr(aten, name).default

    def cast(*args, **kwargs):
        def low(value):
            wide = isinstance(value, torch.Tensor) and value.dtype == torch.float32
            return value.to(torch.bfloat16) if wide else value

        with torch.autocast(NAME, enabled=False):
            return product(*map(low, args), **kwargs)

    return cast


def register() -> None:
    """Once a process."""
    if hasattr(torch, NAME):
        return
    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=Module())
    everything, products = (torch.library.Library(name, "IMPL") for name in ("_", "aten"))
    everything.fallback(run, "PrivateUse1")
    for name in ("linear", "matmul", "mm", "bmm", "scaled_dot_product_attention"):
        products.impl(name, autocast_of(name), "AutocastPrivateUse1")
    register.kept = everything, products


LOADED_BY = (
    "evaluate.model_responses",
    "policy.engines",
    "rl.reward_noise",
    "rl.train",
    "sft.train",
)


def stand_in(patch) -> str:
    """The device where klear would find a GPU, and what torch or transformers ask of CUDA alone."""
    register()
    from transformers import PreTrainedModel

    from klearlib.policy import captured
    from klearlib.policy.load import load_policy

    def loaded(*args, device=NAME, **how):
        return load_policy(*args, device=device, **how)

    def moved(model, device):
        model = move(model, device)
        model.tie_weights()  # each weight becomes a new one here
        return model

    def saved(model, path):
        weights = model.state_dict(keep_vars=True)
        own = {id(weight): weight.detach().cpu() for weight in weights.values()}
        save(model, path, state_dict={name: own[id(each)] for name, each in weights.items()})

    move, save = PreTrainedModel.to, PreTrainedModel.save_pretrained
    patch.setattr(PreTrainedModel, "to", moved)
    patch.setattr(PreTrainedModel, "save_pretrained", saved)
    for name in LOADED_BY:
        patch.setattr(importlib.import_module(f"klearlib.{name}"), "load_policy", loaded)

    def made(values, *, device=None, **how):
        if device is None or torch.device(device).type != NAME:
            return tensor(values, device=device, **how)
        return tensor(values, **how).to(device)

    generator, tensor = torch.Generator, torch.tensor
    patch.setattr(torch, "Generator", lambda device="cpu": generator())
    patch.setattr(torch, "tensor", made)
    graph = {"capture": lambda advance: SimpleNamespace(replay=advance)}
    patch.setattr(captured.CapturedDecoding.__init__, "__kwdefaults__", graph)
    return NAME
