"""The HTTP server: JSON in, `ChatRequest` to the model, events out in the shape of each API.

One file in `routes/` is one API family, found by its name. Routes know neither arrays nor how
tokens are made; `wire/` says how each family writes requests and answers. Importing this
package is light: FastAPI and uvicorn come with `server.app`.
"""
