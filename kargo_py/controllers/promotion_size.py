"""How much of its Freight a Promotion embeds, so that it can be written: Freight may be as large as an object can be.

Pure.
"""

from __future__ import annotations

from kargo_py.api.freight import FreightReference
from kargo_py.api.promotion import FreightCollection
from kargo_py.controllers.stage_size import slim, slim_freight
from kargo_py.kube.codec import encode


def embedded(
    freight: FreightReference, collection: FreightCollection, room: int
) -> tuple[FreightReference, FreightCollection]:
    """The two with as much left out as is needed to take *room* bytes together, the least useful first.

    What is left out can be read in the Freight itself.
    """
    if _size(freight, collection) > room:
        collection = slim(collection)
    if _size(freight, collection) > room:
        freight = slim_freight(freight)
    return freight, collection


def _size(freight: FreightReference, collection: FreightCollection) -> int:
    return len(encode(freight.wire())) + len(encode(collection.wire()))
