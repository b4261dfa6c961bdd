"""What native kernels must not be given: they divide and multiply without looking.

Where Python raises, a kernel may end the process: the least integer divided by -1 is a SIGFPE, and
so is a window whose reach exceeds what the arithmetic library counts in. Without memory ("meta")
none of that shows, because no kernel runs. Every operation is looked at, also those within
modules and those whose numbers the graph has computed.
"""

from __future__ import annotations

import functools

import torch

from swift_hapi.protocol.errors import ModelInvalid

#: of windows, pads and factors: no dimension of an input is longer, so none need reach farther
MAX_REACH = 65_536
#: the same of transposed convolutions, whose work grows with the square of their stride
MAX_SPREAD = 1_024
#: of all other integers but the ends of slices and what is added, multiplied or compared
MAX_NUMBER = 2**31 - 1

_REACHING = frozenset(
    {
        *("kernel_size", "stride", "padding", "dilation", "output_padding", "pad", "step"),
        *("groups", "group", "upscale_factor", "downscale_factor"),
    }
)
#: operation -> arguments, where the schema calls numbers that must be integers "Scalar"
_COUNTING = {"arange": ("start", "end", "step"), "linspace": ("start", "end")}
_DIVIDING = frozenset({"div", "divide", "floor_divide", "remainder", "fmod"})


@functools.cache
def _checked(op) -> tuple[tuple[int, str, int], ...]:
    """(place, name, greatest amount) of the arguments that are integers or lists of them."""
    name = op.overloadpacket.__name__
    found = []
    for at, argument in enumerate(op._schema.arguments):
        kind = str(argument.type)
        counting = argument.name in _COUNTING.get(name, ())
        if not counting and "int" not in kind.lower():
            continue
        # Slices end where they like; torch itself writes 2^63 - 1 for "to the end".
        if name != "slice":
            reaching = argument.name in _REACHING and not counting
            found.append((at, argument.name, MAX_REACH if reaching else MAX_NUMBER))
    return tuple(found)


def check_call(op, args: tuple, kwargs: dict) -> None:
    """
    :raises ModelInvalid: an integer is beyond what kernels can be trusted with, or integers are
        divided by what may be 0 or -1
    """
    for at, name, most in _checked(op):
        value = args[at] if at < len(args) else kwargs.get(name)
        for number in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(number, (int, float)) and abs(number) > most:
                raise ModelInvalid(f"{name} must be at most {most}")
    name = op.overloadpacket.__name__
    if name == "convolution":
        _check_convolution(args)
    elif name.removesuffix("_") in _DIVIDING:
        _check_division(name, args, kwargs)
    elif name in ("avg_pool2d", "avg_pool3d"):
        # Applied to integers, too.
        divisor = args[6] if len(args) > 6 else kwargs.get("divisor_override")
        if divisor is not None and divisor < 1:
            raise ModelInvalid("divisor_override must be above 0")
    elif name == "repeat_interleave":
        raise ModelInvalid("how often rows are repeated must be one number")


def _check_convolution(args: tuple) -> None:
    _, _, _, stride, padding, dilation, transposed, output_padding, _ = args
    if min(*stride, *dilation) < 1:
        raise ModelInvalid("stride and dilation must be above 0")
    if transposed and max(*stride, *dilation, *padding, *output_padding) > MAX_SPREAD:
        raise ModelInvalid(f"a transposed convolution spreads by {MAX_SPREAD} at most")


def _check_division(name: str, args: tuple, kwargs: dict) -> None:
    exact = name.startswith("div") and kwargs.get("rounding_mode") is None
    if exact or any(map(_is_float, args[:2])):
        return
    divisor = args[1]
    if torch.is_tensor(divisor) or divisor in (0, -1):
        raise ModelInvalid(
            f"{name} of integers: the divisor must be one number other than 0 and -1; divide "
            "float32 instead"
        )


def _is_float(value: object) -> bool:
    return value.is_floating_point() if torch.is_tensor(value) else isinstance(value, float)
