"""Tiny random networks with tokenizers, saved as folders of transformers; imports torch lazily."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE, WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

WORDS = (
    "a the tier is S D cats sleep long budget tokens wind farm filler . , [ ] SEP / s predict : "
    "Determine if hypothesis true given premise ? Premise Hypothesis Summarize following text "
    "output passage 1 2 3 4"
).split()
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def bert_tokenizer() -> Any:
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(WordLevel({w: n for n, w in enumerate([*BERT, *WORDS])}, unk_token="[UNK]"))
    inner.pre_tokenizer = Whitespace()
    inner.add_special_tokens(BERT)
    inner.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]", model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        model_max_length=512,
    )  # fmt: skip


def roberta_tokenizer() -> Any:
    from transformers import PreTrainedTokenizerFast

    special = ["<s>", "<pad>", "</s>", "<unk>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(BPE({w: n for n, w in enumerate([*special, *letters])}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(special)
    inner.post_processor = TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", unk_token="<unk>", bos_token="<s>",
        eos_token="</s>", cls_token="<s>", sep_token="</s>", model_max_length=512,
        model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip


def _bert_config(positions: int = 128, **more: Any) -> Any:
    from transformers import BertConfig

    return BertConfig(
        vocab_size=len(BERT) + len(WORDS), hidden_size=16, num_hidden_layers=2,
        num_attention_heads=2, intermediate_size=32, max_position_embeddings=positions,
        initializer_range=0.8, **more,
    )  # fmt: skip


def bert(folder: Path, labels: list[str], *, tokens: bool = False, positions: int = 128) -> Path:
    """A classifier of pairs, or of tokens, with these outputs in this order."""
    import torch
    from transformers import BertForSequenceClassification, BertForTokenClassification

    torch.manual_seed(7)
    config = _bert_config(positions, num_labels=len(labels), id2label=dict(enumerate(labels)))
    kind = BertForTokenClassification if tokens else BertForSequenceClassification
    kind(config).save_pretrained(folder)
    bert_tokenizer().save_pretrained(folder)
    return folder


def headless_bert(folder: Path) -> Path:
    from transformers import BertModel

    BertModel(_bert_config()).save_pretrained(folder)
    bert_tokenizer().save_pretrained(folder)
    return folder


def roberta(folder: Path) -> Path:
    """A classifier with two outputs, as MiniCheck's."""
    import torch
    from transformers import RobertaConfig, RobertaForSequenceClassification

    torch.manual_seed(7)
    config = RobertaConfig(
        vocab_size=260, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=130, pad_token_id=1, bos_token_id=0,
        eos_token_id=2, type_vocab_size=1, initializer_range=0.8, num_labels=2,
    )  # fmt: skip
    RobertaForSequenceClassification(config).save_pretrained(folder)
    roberta_tokenizer().save_pretrained(folder)
    return folder
