"""A small API over Flask, as a backend of tests: orders by consumer, and a sign-in with a form.

    app.py PORT
"""

import sys

from flask import Flask, jsonify, request

app = Flask(__name__)
PASSWORDS = {"alice": "wonderland", "bob": "builder"}


@app.get("/orders")
def orders():
    """The orders of the consumer whom the proxy has identified."""
    consumer = request.headers.get("X-Consumer-Name")
    return jsonify(consumer=consumer, tier=request.headers.get("X-Consumer-Tier"), orders=[1, 2, 3])


@app.post("/login")
def login():
    """Checks a user name and a password."""
    name, password = request.form.get("username", ""), request.form.get("password", "")
    if PASSWORDS.get(name) != password:
        return jsonify(error="wrong user name or password"), 401
    return jsonify(user=name)


if __name__ == "__main__":
    app.run(host="127.0.0.1", port=int(sys.argv[1]), threaded=True)
