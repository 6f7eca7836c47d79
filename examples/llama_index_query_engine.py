"""A LlamaIndex query engine with packed context: one postprocessor more.

Run it as it stands: `python examples/llama_index_query_engine.py`. It needs no key: LlamaIndex's
own mock model stands in for yours and repeats its prompt, so you see what a model would see.
"""

from llama_index.core import Document, MockEmbedding, VectorStoreIndex
from llama_index.core.llms import MockLLM

from crp_integrations.llama_index import CRPNodePostprocessor

TEXTS = [
    "The Meridian reactor was commissioned on 4 March 2019 and delivers 412 megawatts.",
    "The Meridian reactor is operated by Northfield Energy under a forty-year licence.",
    "Northfield Energy reported revenue of $4.2 million in 2023.",
    "The cooling system does not draw water from the river during summer.",
    "Gardens in the valley grow tulips and roses every spring.",
]


def main() -> None:
    index = VectorStoreIndex.from_documents(
        [Document(text=text) for text in TEXTS], embed_model=MockEmbedding(embed_dim=8)
    )
    engine = index.as_query_engine(
        llm=MockLLM(),
        similarity_top_k=5,
        node_postprocessors=[CRPNodePostprocessor(model="gpt-4o", budget_tokens=60)],
    )
    response = engine.query("How much power does the Meridian reactor deliver?")

    print("prompt that the model got:", response)
    for scored in response.source_nodes:
        about = scored.node.metadata["crp_fact"]
        print(f"{about['position']}. {about['composite_score']:.3f}  {scored.node.get_content()}")
    envelope = response.source_nodes[0].node.metadata["crp_fact"]["envelope"]
    print(
        f"{envelope['token_count']} of {envelope['token_budget']} tokens, "
        f"tier {envelope['quality_tier']}"
    )


if __name__ == "__main__":
    main()
