# syntax=docker/dockerfile:1

# Both images are Debian 12: a binary linked against a newer libc would not start in the second. Tags move: for a
# reproducible build set digests, see docs/operations.md.
ARG BUILD_IMAGE=rust:1.95-slim-bookworm
ARG RUNTIME_IMAGE=gcr.io/distroless/cc-debian12:nonroot

FROM ${BUILD_IMAGE} AS build
WORKDIR /build
COPY . .
# Crates and object files are kept in the builder's cache, so that a small change does not rebuild everything.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/build/target \
    cargo build --locked --release \
    && cp target/release/tidegate /tidegate
# The licences of the dependencies require that their texts are distributed.
ARG CARGO_ABOUT=0.9.3
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    cargo install --locked --version ${CARGO_ABOUT} --features cli --root /about cargo-about \
    && /about/bin/cargo-about generate --locked --fail --output-file /LICENSES-OF-DEPENDENCIES about.hbs
# The default is the quickstart, on all addresses: 127.0.0.1 would be reachable inside the container only.
RUN sed 's/^listen = .*/listen = "0.0.0.0:8080"/' config/quickstart.toml > /tidegate.toml \
    && grep -qxF 'listen = "0.0.0.0:8080"' /tidegate.toml \
    && /tidegate check -c /tidegate.toml

# No shell and no package manager: only the C library, certificates, and a user other than root.
FROM ${RUNTIME_IMAGE}
COPY --from=build /build/LICENSE /build/LICENSE-APACHE /build/LICENSE-MIT /usr/share/doc/tidegate/
COPY --from=build /LICENSES-OF-DEPENDENCIES /usr/share/doc/tidegate/
COPY --from=build /tidegate /usr/local/bin/tidegate
COPY --from=build /tidegate.toml /etc/tidegate/tidegate.toml
EXPOSE 8080
# No HEALTHCHECK, because the image has no HTTP client. Check a `respond` route from outside, such as /alive in
# config/production.toml.
ENTRYPOINT ["/usr/local/bin/tidegate"]
CMD ["run", "-c", "/etc/tidegate/tidegate.toml"]
