"""The service: search of indexes over HTTP, and the page at ``/``. It needs the extra ``serve``.

`collection` is what is served: an index, the model that encodes queries, and the labels, fields (`details`) and
`images` of its items, with what clients have added to them (`additions`). `opening` opens it, and takes in what other
processes have changed. `app` has the routes, `current` keeps the application of a collection up to date, `several`
serves more than one, and `server` and `workers` run them. A request passes `guard` (access and limits), `bodies` (reads
it by the models in `schemas`) and `service`, which encodes it (`encoding`), searches together with other requests
(`batching`) or changes the index (`changes`). `answers` and `errors` are what it sends back.
"""
