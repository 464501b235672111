"""Tokenizers that know nothing are refused, by name; pieces are shown with the spaces that they mean."""

import shutil

import pytest

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

from poskernel.attention.atlas import analyze  # noqa: E402
from poskernel.attention.sources.loading import load  # noqa: E402
from poskernel.attention.sources.tokenizer import decoder, encoder, read_tokenizer  # noqa: E402
from poskernel.errors import InputError  # noqa: E402

SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}


def folder_of(name, place):
    """A tiny model without the files of its tokenizer."""
    if name == "bert":
        model = transformers.BertModel(transformers.BertConfig(**SIZES, vocab_size=120, max_position_embeddings=64))
    elif name == "gpt2":
        model = transformers.GPT2Model(transformers.GPT2Config(n_embd=16, n_layer=1, n_head=2, n_positions=64))
    else:
        model = transformers.T5Model(transformers.T5Config(d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2))
    model.save_pretrained(place)
    return str(place)


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5"])
def test_a_folder_without_vocabulary_files_is_refused(name, tmp_path):
    with pytest.raises(
        InputError, match=r"has no tokenizer that can be read: .*Tokenizer\w* would be empty.*tokenizer.json"
    ):
        load(folder_of(name, tmp_path))


def test_tokenizers_of_bytes_need_no_files(tmp_path):
    transformers.ByT5Tokenizer().save_pretrained(tmp_path)
    tokenizer = read_tokenizer(tmp_path, "bytes", transformers)
    assert encoder(tokenizer, "bytes")("abc") == [100, 101, 102]


def test_a_text_of_unknown_words_is_refused(tiny_llama):
    known = load(str(tiny_llama))
    assert known.encode("w1 nothing") == [1, 60]
    with pytest.raises(InputError, match=r"the tokenizer of '.*' \(\w+\) does not know 100% of the text's 9 tokens"):
        known.encode("all of these nine words are no w numbers")
    with pytest.raises(InputError, match="does not know 100%"):
        analyze(known, sequences=4, length=32)


def test_a_text_that_gives_no_token_is_refused_for_the_tokenizer_and_not_for_its_length():
    class Empty:
        unk_token_id = None

        def __call__(self, text, **options):
            return {"input_ids": []}

    with pytest.raises(InputError, match=r"the tokenizer of 'gpt' \(Empty\) makes no token of a text of 11 letters"):
        encoder(Empty(), "gpt")("hello world")
    assert encoder(Empty(), "gpt")(" ") == []


def fast(model, decoding, words):
    """A tokenizer of that model and that way of putting pieces together."""
    made = tokenizers.Tokenizer(model)
    made.decoder, made.pre_tokenizer = decoding, words
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made)


def wordpiece():
    vocabulary = {
        piece: number for number, piece in enumerate(["[UNK]", "a", "these", "equi", "##valence", "##s", "as"])
    }
    model = tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]")
    return fast(model, tokenizers.decoders.WordPiece(), tokenizers.pre_tokenizers.Whitespace())


def sentencepiece():
    pieces = [
        ("<unk>", 0.0),
        ("▁a", -1.0),
        ("▁these", -1.0),
        ("▁equi", -1.0),
        ("valence", -1.0),
        ("s", -1.5),
        ("▁as", -1.0),
    ]
    model = tokenizers.models.Unigram(pieces, 0)
    return fast(model, tokenizers.decoders.Metaspace(), tokenizers.pre_tokenizers.Metaspace())


@pytest.mark.parametrize("make", [wordpiece, sentencepiece])
def test_pieces_keep_their_spaces_and_lose_their_marks(make):
    tokenizer = make()
    ids = encoder(tokenizer, "m")("these equivalences as")
    pieces = [decoder(tokenizer)(token) for token in ids]
    assert pieces == [" these", " equi", "valence", "s", " as"]


def test_the_files_of_another_tokenizer_do(tiny_llama, tmp_path):
    shutil.copytree(tiny_llama, tmp_path / "model")
    for file in (tmp_path / "model").glob("tokenizer_config*"):
        file.unlink()
    assert load(str(tmp_path / "model")).encode("w3") == [3]
