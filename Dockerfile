# syntax=docker/dockerfile:1

# Both images are Debian 12: a program that is linked against a newer libc would not start in the second. Tags move: for
# a build that can be repeated give digests, see docs/operations.md.
ARG BUILD_IMAGE=rust:1.95-slim-bookworm
ARG RUNTIME_IMAGE=gcr.io/distroless/cc-debian12:nonroot

FROM ${BUILD_IMAGE} AS build
WORKDIR /build
COPY . .
# Crates and object files stay in the builder's cache, so that a changed line does not build everything again.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/build/target \
    cargo build --locked --release \
    && cp target/release/tidegate /tidegate
# The licences of everything that is compiled in ask for their text to go along.
ARG CARGO_ABOUT=0.9.3
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    cargo install --locked --version ${CARGO_ABOUT} --features cli --root /about cargo-about \
    && /about/bin/cargo-about generate --locked --fail --output-file /LICENSES-OF-DEPENDENCIES about.hbs
# The default is the quickstart, but listening where others can reach it: in a container 127.0.0.1 is the
# container's own.
RUN sed 's/^listen = .*/listen = "0.0.0.0:8080"/' config/quickstart.toml > /tidegate.toml \
    && grep -qxF 'listen = "0.0.0.0:8080"' /tidegate.toml \
    && /tidegate check -c /tidegate.toml

# No shell and no package manager: the C library, certificates, and a user that is not root.
FROM ${RUNTIME_IMAGE}
COPY --from=build /build/LICENSE /build/LICENSE-APACHE /build/LICENSE-MIT /usr/share/doc/tidegate/
COPY --from=build /LICENSES-OF-DEPENDENCIES /usr/share/doc/tidegate/
COPY --from=build /tidegate /usr/local/bin/tidegate
COPY --from=build /tidegate.toml /etc/tidegate/tidegate.toml
EXPOSE 8080
# There is no HEALTHCHECK, because the image has nothing that could ask. Ask from outside for a route that answers
# by itself, such as /alive in config/production.toml.
ENTRYPOINT ["/usr/local/bin/tidegate"]
CMD ["run", "-c", "/etc/tidegate/tidegate.toml"]
