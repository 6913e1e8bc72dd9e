"""The service: search of one index over HTTP, and the page at ``/``. It needs the extra ``serve``.

`collection` is what is served: an index, the model that encodes queries, and the labels, fields (`details`) and
`images` of its items. `app` has the routes and `server` runs them. A request passes `guard` (access and limits),
`bodies` (reads it by the models in `schemas`) and `service`, which encodes it (`encoding`), searches together with
other requests (`batching`) or changes the index (`changes`). `answers` and `errors` are what it sends back.
"""
