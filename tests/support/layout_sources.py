"""Sources in the style of torch.fx and dynamo for tests of the layout's parser, with inputs that they run on."""

import torch

HEADER = "import torch\nfrom torch import device\n\n\nclass GraphModule(torch.nn.Module):\n"


def module(signature: str, *lines: str) -> str:
    """A model.py with a `forward` of this signature and these lines; the body starts on line 7."""
    body = "".join(f"        {line}\n" for line in lines)
    return f"{HEADER}    def forward(self, {signature}):\n{body}"


SOURCES: dict[str, tuple[str, tuple[torch.Tensor, ...]]] = {
    "clean-ups and aliases": (
        module(
            "L_x_ : torch.Tensor, L_self_modules_fc_parameters_weight_ : torch.nn.parameter.Parameter",
            "l_x_ = L_x_",
            "w = L_self_modules_fc_parameters_weight_",
            "y = torch._C._nn.linear(l_x_, w);  l_x_ = w = None",
            "z = y.relu();  y = None",
            "return (z,)",
        ),
        (torch.randn(2, 3), torch.randn(4, 3)),
    ),
    "augmented assignments": (
        module(
            "in_0, in_1",
            "tmp_0 = torch.nn.functional.relu(in_0, inplace = False)",
            "tmp_0 += in_1;  tmp_1 = tmp_0;  in_1 = None",
            "tmp_1 *= 2",
            "tmp_1 -= 0.5",
            "return (tmp_0, tmp_1)",
        ),
        (torch.randn(3, 3), torch.randn(3, 3)),
    ),
    "arithmetic on sizes by torch's names": (
        module(
            "x, y",
            "n = x.size(0);  m = y.size(0)",
            "total = torch.sym_sum([n, m, 1]);  n = None",
            "larger = torch.sym_max(total, 4);  total = None",
            "least = torch.sym_min(larger, m)",
            "wide = torch.sym_int(torch.sym_float(larger) * 1.5)",
            "chosen = torch.sym_ite(torch.sym_not(larger == least), larger, wide)",
            "z = torch.cat((x, y)).sum().expand(chosen, least)",
            "root = z * torch.sym_sqrt(wide)",
            "return (z, root, x.new_zeros(larger))",
        ),
        (torch.randn(2, 3), torch.randn(4, 3)),
    ),
    "subscripts": (
        module(
            "x, index",
            "a = x[0:2, None]",
            "b = x[..., -1]",
            "c = x[(slice(None, None, None), slice(0, None, 2))]",
            "d = x[[0, 1]]",
            "e = x[index]",
            "f = x[:, 1:][::2, :-1]",
            "return (a, b, c, d, e, f)",
        ),
        (torch.arange(12.0).view(3, 4), torch.tensor([2, 0])),
    ),
    "assignments to parts": (
        module(
            "x, v",
            "y = x.clone()",
            "y[0:2, None] = v;  setitem = y;  setitem = None",
            "y[2] = 7",
            "y[2, 1] += 1",
            "return y",
        ),
        (torch.zeros(3, 4), torch.ones(2, 1, 4)),
    ),
    "constants": (
        module(
            "x : torch.Tensor",
            "a = torch.arange(4, dtype = torch.float32)",
            "b = x.to(torch.float64).masked_fill(x > 0, -float('inf'))",
            "c = torch.full((2, 2), float('nan')).nan_to_num(1e-05)",
            "d = x.clone(memory_format = torch.contiguous_format)",
            "e = torch.clamp(x, min = -1, max = +0.5)",
            "f = x.contiguous(memory_format=torch.channels_last)",
            "g = x * (1 + 2j)",
            "return (a, b, c, d, e, f, g)",
        ),
        (torch.randn(1, 2, 3, 4),),
    ),
    "chains and operators": (
        module(
            "x, y",
            "a = x.view(2, 2, 3).transpose(1, 2).reshape(-1, 4)",
            "b = -x + y @ torch.ones(3, 3) * 2 ** 2 / 3",
            "c = (x <= y) & ~(x == y) | (x != 0)",
            "d = x // 0.7 % 2",
            "e = torch.add(torch.relu(x), x.sigmoid().mul(y), alpha=2)",
            "f = 2 - x",
            "return ((a, b), [c, d], {'e': e, 'f': f})",
        ),
        (torch.randn(4, 3), torch.randn(4, 3)),
    ),
    "attributes and sizes": (
        module(
            "x",
            "shape = x.shape",
            "n = shape[0]",
            "m = x.size(1)",
            "m += 1",
            "k = m",
            "y = x.T.reshape(n * (m - 1))",
            "z = getattr(x, 'mT') + torch.zeros(k - 1, n, dtype=x.dtype)",
            "return (y, z)",
        ),
        (torch.randn(3, 4),),
    ),
    "several results": (
        module(
            "x",
            "split = torch.functional.split(x, [1, 2], dim = 1)",
            "a = split[0];  b = split[1];  split = None",
            "c, d = x.chunk(2)",
            "max_1 = torch.max(x, dim = 1)",
            "values = max_1[0]",
            "return (a, b, c, d, values)",
        ),
        (torch.randn(4, 3),),
    ),
    "names again and again": (
        module(
            "x",
            '"""A docstring."""',
            "# a comment",
            "x = x + 1",
            "y: torch.Tensor = x",
            "x = x * 2",
            "y = torch.ops.aten.relu.default(y)",
            "_set_grad_enabled = torch._C._set_grad_enabled(False);  _set_grad_enabled = None",
            "z = (x > 0).__and__(y > 0)",
            "w = torch.Tensor.add(x, y)",
            "pass",
            "del y",
            "return (x, z, w)",
        ),
        (torch.randn(3),),
    ),
    "other modules": (
        module(
            "x",
            "a = math.sqrt(16)",
            "b = operator.add(x, a)",
            "c = operator.mul(b, math.sqrt(4))",
            "return (torch.nn.functional.pad(c, (1, 1), 'constant', 0.0), None)",
        ).replace("import torch\n", "import math\nimport operator\nimport torch\n", 1),
        (torch.randn(3),),
    ),
}
"""Sources by what they show, each with tensors that they run on."""
