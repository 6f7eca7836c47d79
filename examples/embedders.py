"""Other embedders and rerankers in one argument each.

Run it as it stands: `python examples/embedders.py`. It needs no key: objects of LangChain and
LlamaIndex that make vectors by chance stand in for a hosted model, and the shipped network, copied
without its card, for a folder that you downloaded. With a key,
`embedder="litellm:text-embedding-3-small"` takes their place.
"""

import shutil
import tempfile
from pathlib import Path

from langchain_core.embeddings import DeterministicFakeEmbedding
from llama_index.core import MockEmbedding
from llama_index.core.postprocessor import SimilarityPostprocessor

from crp_integrations import Relay, weights

FACTS = [
    "The Meridian plan costs 4.20 euros a month and can be cancelled at any time.",
    "The Larkspur plan costs 7.10 euros a month and is paid for a whole year.",
]


def downloaded() -> Path:
    """A folder as model hubs have them: `model.onnx` and `tokenizer.json`."""
    folder = Path(tempfile.mkdtemp()) / "my-model"
    folder.mkdir()
    for name in ("model.onnx", "tokenizer.json"):
        shutil.copy(weights.describe("minilm").path / name, folder / name)
    return folder


def main() -> None:
    for embedder in (
        None,  # the one that ships
        DeterministicFakeEmbedding(size=64),  # any Embeddings of LangChain
        MockEmbedding(embed_dim=64),  # any BaseEmbedding of LlamaIndex
        downloaded(),  # or "onnx:FOLDER"
    ):
        with Relay.open(embedder=embedder) as relay:
            relay.add(FACTS)
            answer = relay.ask("What does the Meridian plan cost?")
            print(relay.fabric.embedder.identity.split("+")[0], "→", answer.text)
    # A reranker looks at the best candidates again: a LangChain compressor, a LlamaIndex
    # postprocessor, a CrossEncoder, "onnx:FOLDER" or "litellm:cohere/rerank-english-v3.0".
    with Relay.open(reranker=SimilarityPostprocessor(similarity_cutoff=0.0)) as relay:
        relay.add(FACTS)
        print(relay.ask("What does the Meridian plan cost?").envelope.algorithms)


if __name__ == "__main__":
    main()
