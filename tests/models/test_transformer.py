"""The transformer against an obvious one, its savings, its hook, and the ensemble transforms of torch.func."""

import itertools
import math

import pytest
import torch
from torch import Tensor, nn

from cells import TRAINED_NAMES
from poskernel.encodings import ENCODINGS, Placement
from poskernel.errors import InputError
from poskernel.models.transformer import Architecture, AttentionInputs, GlobalScale, Norm, Transformer

SHAPES = [(1, 1), (2, 4)]


def model_of(encoding: str, **changes: object) -> Transformer:
    torch.manual_seed(3)
    architecture = Architecture(**{"width": 16, "train_length": 6, **changes})  # type: ignore[arg-type]
    return Transformer(architecture, ENCODINGS[encoding]).eval()  # a running mean stays where it is


def run(model: Transformer, *inputs: Tensor, **options: object) -> Tensor:
    """One forward pass; whatever the encoding draws at random is the same every time."""
    with model.position_module.drawing_from(torch.Generator().manual_seed(5)):
        return model(*inputs, **options)


def placement_of(model: Transformer, length: int) -> Placement:
    """The placement of that forward pass."""
    with model.position_module.drawing_from(torch.Generator().manual_seed(5)):
        return model.position_module(torch.arange(length))


def reference(model: Transformer, tokens: Tensor) -> Tensor:
    """Logits of one sequence, head by head and row by row."""
    length, shape = len(tokens), model.architecture
    placement = placement_of(model, length)
    stream = model.embedding(tokens)
    if placement.embedding is not None:
        stream = stream + placement.embedding
    for block in model.blocks:
        q, k, v = block.query_key_value(block.attention_norm(stream)).split(shape.width, dim=-1)
        heads = []
        for head in range(shape.heads):
            columns = slice(head * shape.head_width, (head + 1) * shape.head_width)
            rows = []
            for i in range(length):
                keys = range(i + 1) if shape.causal else range(length)
                logits = []
                for j in keys:
                    query, key = q[i, columns], k[j, columns]
                    if placement.query_rotation is not None:
                        query = turn(query, placement.query_rotation, i)
                        key = turn(key, placement.key_rotation, j)
                    if placement.key_vectors is not None:
                        key = key + placement.key_vectors[i, j]
                    logit = query @ key / math.sqrt(shape.head_width)
                    logits.append(logit if placement.bias is None else logit + placement.bias[head, i, j])
                weights = torch.stack(logits).softmax(0)
                rows.append(sum(weights[j] * v[j, columns] for j in keys))
            heads.append(torch.stack(rows))
        stream = stream + block.output(torch.cat(heads, dim=-1))
        if block.mlp is not None:
            stream = stream + block.mlp(stream)
    return model.head(model.norm(stream))


def turn(vector: Tensor, rotation: tuple[Tensor, Tensor], position: int) -> Tensor:
    """Rotate plane by plane with 2 x 2 matrices."""
    cosine, sine = rotation[0][position], rotation[1][position]
    planes, turned = len(cosine), vector.clone()
    for k in range(planes):
        matrix = torch.stack([torch.stack([cosine[k], -sine[k]]), torch.stack([sine[k], cosine[k]])])
        turned[[k, k + planes]] = matrix @ vector[[k, k + planes]]
    return turned


@pytest.mark.parametrize(("encoding", "shape"), list(itertools.product(TRAINED_NAMES, SHAPES)))
def test_logits_equal_the_obvious_ones(encoding: str, shape: tuple[int, int]) -> None:
    model = model_of(encoding, layers=shape[0], heads=shape[1])
    few, many = torch.randint(12, (2, 9)), torch.randint(12, (16, 9))  # without and with distinct rows looked up
    for tokens in (few, many):
        expected = torch.stack([reference(model, sequence) for sequence in tokens[:2]])
        torch.testing.assert_close(run(model, tokens)[:2], expected)


def test_key_vectors_are_added_to_the_keys_and_nothing_else() -> None:
    """Vectors that are the same at every pair shift all logits of a row alike, which softmax ignores."""
    plain, shaw = model_of("nope", layers=2, heads=2), model_of("shaw", layers=2, heads=2)
    shaw.load_state_dict(plain.state_dict(), strict=False)
    (table,) = shaw.position_module.parameters()
    tokens = torch.randint(12, (16, 9))
    assert not torch.allclose(plain(tokens), shaw(tokens))
    table.data[:] = table.data[:1]
    torch.testing.assert_close(plain(tokens), shaw(tokens))
    table.data[:] = 0
    assert torch.equal(plain(tokens), shaw(tokens))


@pytest.mark.parametrize("norm", list(Norm))
@pytest.mark.parametrize("mlp", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_every_norm_mask_and_mlp_equals_the_obvious_one(norm: Norm, mlp: bool, causal: bool) -> None:
    model = model_of("rope", layers=2, heads=2, norm=norm, mlp=mlp, causal=causal)
    tokens = torch.randint(12, (14, 7))
    torch.testing.assert_close(model(tokens)[:1], reference(model, tokens[0])[None])


@pytest.mark.parametrize(("encoding", "shape"), list(itertools.product(TRAINED_NAMES, SHAPES)))
def test_rows_are_the_rows_of_the_whole_with_the_same_gradients(encoding: str, shape: tuple[int, int]) -> None:
    model = model_of(encoding, layers=shape[0], heads=shape[1])
    tokens, rows = torch.randint(12, (16, 9)), torch.tensor([2, 5, 8])
    gradients = []
    for logits in (run(model, tokens, rows), run(model, tokens)[:, rows]):
        model.zero_grad()
        (logits**3).mean().backward()
        gradients.append([weight.grad.clone() for weight in model.parameters()])
    torch.testing.assert_close(run(model, tokens, rows), run(model, tokens)[:, rows])
    torch.testing.assert_close(*gradients)


def test_looked_up_rows_give_the_gradients_of_computed_ones() -> None:
    for encoding in TRAINED_NAMES:
        model = model_of(encoding, layers=2, heads=2)
        tokens = torch.randint(12, (16, 9))
        gradients = []
        for batches in ([tokens], tokens.split(1)):  # one sequence at a time has nothing to look up
            model.zero_grad()
            for batch in batches:
                (run(model, batch) ** 3).sum().backward()
            gradients.append([weight.grad.clone() for weight in model.parameters()])
        torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-3)


def test_a_causal_model_does_not_see_later_tokens_and_a_bidirectional_one_does() -> None:
    tokens = torch.randint(12, (4, 8))
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % 12
    causal, bidirectional = model_of("rope", layers=2), model_of("rope", layers=2, causal=False)
    torch.testing.assert_close(causal(tokens)[:, :-1], causal(changed)[:, :-1])
    assert not torch.allclose(bidirectional(tokens)[:, :-1], bidirectional(changed)[:, :-1])


def test_shared_weights_do_not_depend_on_the_encoding() -> None:
    rope, learned = model_of("rope").state_dict(), model_of("learned").state_dict()
    assert set(learned) - set(rope) == {"position_module.table.weight"}
    assert all(torch.equal(rope[name], learned[name]) for name in rope)


@pytest.mark.parametrize("encoding", TRAINED_NAMES)
def test_the_hook_sees_what_attention_uses(encoding: str) -> None:
    model = model_of(encoding, layers=2, heads=2)
    tokens, seen = torch.randint(12, (3, 9)), []
    torch.testing.assert_close(run(model, tokens, hook=seen.append), run(model, tokens))
    assert [inputs.layer for inputs in seen] == [0, 1]
    placement = placement_of(model, 9)
    for inputs in seen:
        assert (inputs.key_vectors is None) == (placement.key_vectors is None)
        assert inputs.query.shape == inputs.unrotated_key.shape == (3, 2, 9, 8)
        assert inputs.scale == pytest.approx(8**-0.5)
        if placement.key_rotation is None:
            torch.testing.assert_close(inputs.key, inputs.unrotated_key)
        else:
            if encoding not in ("yarn", "longrope", "xpos"):  # these stretch what they turn
                torch.testing.assert_close(inputs.key.norm(dim=-1), inputs.unrotated_key.norm(dim=-1))
            expected = turn(inputs.unrotated_key[1, 1, 7], placement.key_rotation, 7)
            torch.testing.assert_close(inputs.key[1, 1, 7], expected)


def test_what_the_hook_returns_is_used_and_the_identity_changes_nothing() -> None:
    model, tokens, rows = model_of("alibi", layers=2, heads=2), torch.randint(12, (3, 9)), torch.tensor([3, 8])

    def uniform(inputs: AttentionInputs) -> AttentionInputs:
        return AttentionInputs(**{**vars(inputs), "scale": 0.0, "bias": None})

    plain = model(tokens, rows, hook=lambda inputs: None)
    assert torch.equal(plain, model(tokens, rows, hook=lambda inputs: inputs))
    assert not torch.allclose(plain, model(tokens, rows, hook=uniform))


def test_positions_can_be_given() -> None:
    model, tokens = model_of("sinusoidal"), torch.randint(12, (3, 6))
    assert torch.equal(model(tokens, position=torch.arange(6)), model(tokens))
    assert not torch.allclose(model(tokens, position=torch.arange(6) + 4), model(tokens))


@pytest.mark.parametrize("encoding", [name for name in TRAINED_NAMES if not ENCODINGS[name].drawn])
def test_models_stack_into_an_ensemble(encoding: str) -> None:
    models = [model_of(encoding, layers=2, heads=2) for _ in range(3)]
    for index, model in enumerate(models):
        for weight in model.parameters():
            weight.data += 0.1 * index
    weights, buffers = torch.func.stack_module_state(models)
    tokens, rows = torch.randint(12, (3, 16, 9)), torch.tensor([[1, 2], [5, 7], [0, 8]])

    def logits(weights: dict[str, Tensor], buffers: dict[str, Tensor], tokens: Tensor, rows: Tensor) -> Tensor:
        return torch.func.functional_call(models[0], (weights, buffers), (tokens, rows))

    together = torch.vmap(logits)(weights, buffers, tokens, rows)
    alone = torch.stack([model(tokens[index], rows[index]) for index, model in enumerate(models)])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 10, "heads": 3}, "width of 10 does not divide into 3 heads"),
        ({"layers": 0}, "layers of the architecture is 0"),
        ({"vocabulary": 0}, "vocabulary of the architecture is 0"),
    ],
)
def test_impossible_shapes_are_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Architecture(**changes)  # type: ignore[arg-type]


def test_norms_are_what_they_say() -> None:
    assert isinstance(Norm.LAYER.module(4), nn.LayerNorm)
    assert isinstance(Norm.RMS.module(4), nn.RMSNorm)
    assert torch.equal(Norm.NONE.module(4)(torch.ones(4)), torch.ones(4))


def test_the_norm_before_attention_can_be_another_than_the_rest() -> None:
    plain, without = model_of("rope", layers=2), model_of("rope", layers=2, attention_norm=Norm.NONE)
    for block in without.blocks:
        assert isinstance(block.attention_norm, nn.Identity) and isinstance(block.mlp[0], nn.LayerNorm)
    assert isinstance(without.norm, nn.LayerNorm)
    same = model_of("rope", layers=2, attention_norm=Norm.LAYER)
    tokens = torch.tensor([[1, 4, 2, 7]])
    assert torch.equal(same(tokens), plain(tokens)) and not torch.equal(without(tokens), plain(tokens))


def test_a_global_scale_keeps_the_mean_size_and_not_each_tokens_own() -> None:
    scale = GlobalScale(8)
    stream = 3 * torch.randn(64, 10, 8, generator=torch.Generator().manual_seed(0))
    stream[:, 0] *= 5
    for _ in range(1000):
        scaled = scale(stream)
    size = scaled.detach().square().mean(-1)
    assert float(size.mean()) == pytest.approx(1, abs=0.01)
    assert float(size[:, 0].mean() / size[:, 1:].mean()) == pytest.approx(25, rel=0.1)
    torch.testing.assert_close(scaled / stream, (scaled / stream)[:1, :1, :1].expand_as(stream))
    before = scale.mean_square.clone()
    with torch.inference_mode():
        scale(10 * stream)
    scale.eval()(10 * stream)
    assert torch.equal(scale.mean_square, before)


def test_no_token_sees_a_later_one_through_a_global_scale() -> None:
    model = model_of("rope", layers=2, norm=Norm.SCALE)
    first, second = torch.tensor([[1, 4, 2, 7]]), torch.tensor([[1, 4, 2, 3]])
    one, other = model_of("rope", layers=2, norm=Norm.SCALE)(first), model(second)
    assert torch.equal(one[:, :3], other[:, :3]) and not torch.equal(one[:, 3], other[:, 3])


def test_a_global_scale_counts_every_token_it_sees() -> None:
    model = model_of("rope", norm=Norm.SCALE, vocabulary=3).train()
    tokens = torch.zeros(8, 6, dtype=torch.long)  # few distinct rows, and two of three never occur
    model(tokens)
    expected = 0.99 + 0.01 * float(model.embedding.weight[0].detach().square().mean())
    assert float(model.blocks[0].attention_norm.mean_square) == pytest.approx(expected)
