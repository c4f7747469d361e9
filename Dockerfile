# The command line and the workbench, as an ordinary user. /data is the only place it reads and writes.
#   docker build -t flowveil .
#   docker run --rm -v "$PWD:/data" flowveil anonymize trips.csv --k 10 --out release
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir "$(ls /wheels/flowveil-*.whl)[all]" && rm -r /wheels \
    && useradd --create-home --uid 1000 flowveil && mkdir /data && chown flowveil /data
USER flowveil
WORKDIR /data
EXPOSE 8000
ENTRYPOINT ["flowveil"]
CMD ["--help"]
