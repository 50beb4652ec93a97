"""The HTTP server: rows in, predictions out, from a model that may be replaced while it answers.

loaded.py   a model that is being served: its predictor, its readers of rows, its name
rows.py     bodies of requests to batches, by the model's own reading
explain.py  what each part of a row adds to its margin
reload.py   watches the file and puts a new model into place between two requests
http.py     bodies in, answers out, and the errors between them
metrics.py  what Prometheus reads
app.py      the routes
run.py      sockets, worker processes, signals
page.html   the page at /
"""
