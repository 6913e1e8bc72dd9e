"""The service: search of one index over HTTP, and the page at ``/``. It needs the extra ``serve``.

``collection`` is what is served: an index, the model that encodes queries, labels, fields and pictures. ``service``
answers questions about it; on its way a query passes ``guard`` (who may ask), ``bodies`` (what was asked), ``batching``
(one pass over the codes for all who wait) and ``answers``. ``app`` has the routes, ``server`` runs them.
"""
