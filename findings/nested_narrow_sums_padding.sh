#!/bin/sh
# A jagged tensor made from a padded batch by torch.nested.narrow sums and averages the padding too.
#
# Guess, before the run: sum(), mean() and max() of a jagged nested tensor see the real tokens only.
#
# Versions: torch 2.13.0 (CPU).
#
# What is so: right for a jagged tensor made of a list of rows. One made by `torch.nested.narrow`
# (a view of the padded batch with starts and lengths) is a view with holes: its unbind() and
# numel() are right, and sum(), mean(), max(), any() over the whole read the entire buffer, padding
# included. Arithmetic keeps the holes. The gradient follows another rule than the value: mean()
# divides by 15 forward and by 6 (numel) backward, and gives a gradient to padding. clone() keeps the
# holes; contiguous() heals them. Reductions along the ragged dimension raise an error.
#
# Who meets it: whoever turns verl's padded (batch, response) log-probs with lengths into a jagged
# tensor without a copy. The loss that is logged is the mean over the padded width, its gradient
# has another scale, and both look reasonable.
#
# Output seen:
#   rows [[0.0, 1.0], [6.0, 7.0, 8.0], [12.0]] numel 6
#   narrow      sum 105.0 mean 7.0 max 14.0
#   contiguous  sum 34.0 mean 5.6667 max 12.0
#   gradient of mean: 15 places of 0.1667
set -eu
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT TERM
"${PYTHON:-python3}" -m venv "$tmp/venv" || exit 3
"$tmp/venv/bin/pip" install -q torch==2.13.0 numpy==2.4.6 || exit 3
"$tmp/venv/bin/python" -c "import torch" || exit 3
"$tmp/venv/bin/python" -W ignore - <<'PY' || exit 1
import torch

padded = torch.arange(15.0).reshape(3, 5).requires_grad_()
starts, lengths = torch.tensor([0, 1, 2]), torch.tensor([2, 3, 1])
view = torch.nested.narrow(padded, 1, starts, lengths, layout=torch.jagged)
rows = [row.tolist() for row in view.unbind()]
print("rows", rows, "numel", view.numel())
assert rows == [[0.0, 1.0], [6.0, 7.0, 8.0], [12.0]] and view.numel() == 6


def totals(tensor):
    return tensor.sum().item(), round(tensor.mean().item(), 4), tensor.max().item()


print("narrow      sum {} mean {} max {}".format(*totals(view.detach())))
print("contiguous  sum {} mean {} max {}".format(*totals(view.detach().contiguous())))
listed = torch.nested.as_nested_tensor([torch.tensor(row) for row in rows], layout=torch.jagged)
assert totals(listed) == totals(view.detach().contiguous()) == (34.0, 5.6667, 12.0)
assert totals(view.detach()) == totals(view.detach().clone()) == (105.0, 7.0, 14.0)
assert (view.detach() + 1).sum().item() == 120.0

view.mean().backward()
print(f"gradient of mean: {padded.grad.numel()} places of {padded.grad[0, 0].item():.4f}")
assert torch.equal(padded.grad, torch.full((3, 5), 1 / 6))
PY
