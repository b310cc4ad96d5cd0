// An issuer of tokens for the tests: oidc-provider over TLS, with the paths and the claims of Microsoft Entra.
//
//   node issuer.mjs < SETTINGS
//
// The first line of its input is JSON: {port, certificate, key (files), tenant, clients: [{id, secret, claims}]}. It
// prints {} when it listens. Each further line is a JSON array, answered with a line:
//   ["tokens", ID, LIFETIME_S, SLOW_S, ISSUER]  from now on a client's tokens live so long, by a clock that is so many
//                                               seconds slow, and name this issuer (null: the provider's own)
//   ["rotate"]                                  another key takes the place of the one there was
//   ["away", IS_AWAY]                           whether each connection is hung up on
//   ["given", ID]                               how many tokens a client was given
// It ends with its input.
import { generateKeyPairSync, randomUUID } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:https";
import { createInterface } from "node:readline";
import Provider from "oidc-provider";

console.info = console.error; // the provider's notices: standard output is for answers
const lines = createInterface({ input: process.stdin });
const settings = JSON.parse((await once(lines, "line"))[0]);
const { port, tenant, clients } = settings;
const origin = `https://localhost:${port}`;
const mount = `/${tenant}/v2.0`;
const claims = new Map(clients.map((each) => [each.id, each.claims]));
const given = new Map(clients.map((each) => [each.id, 0]));
const issued = new Map(clients.map((each) => [each.id, { lifetimeS: 3600, slowS: 0, issuer: null }]));
let isAway = false;

// As at Entra, the resource is a scope without its last part: a second slash before it stays. Java and Go ask for
// openid, profile and offline_access beside it.
const resourceOf = (scopes) => scopes?.split(" ").find((each) => each.endsWith("/.default"))?.slice(0, -"/.default".length);

function provider() {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const made = new Provider(`${origin}${mount}`, {
    cookies: { keys: ["unused"] },
    jwks: { keys: [{ ...privateKey.export({ format: "jwk" }), kid: randomUUID(), use: "sig" }] },
    clients: clients.map(({ id, secret }) => ({
      client_id: id,
      client_secret: secret,
      token_endpoint_auth_method: "client_secret_post",
      grant_types: ["client_credentials"],
      redirect_uris: [],
      response_types: [],
    })),
    ttl: { ClientCredentials: (context, token, client) => issued.get(client.clientId).lifetimeS },
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: false },
      resourceIndicators: {
        enabled: true,
        defaultResource: (context) => resourceOf(context.oidc.params.scope),
        getResourceServerInfo: (context, resource) => ({
          scope: "",
          audience: resource,
          accessTokenFormat: "jwt",
          jwt: { sign: { alg: "RS256" } },
        }),
      },
    },
    formats: {
      customizers: {
        jwt(context, token, { payload }) {
          const id = payload.client_id;
          const { slowS, issuer } = issued.get(id);
          given.set(id, given.get(id) + 1);
          Object.assign(payload, claims.get(id), { appid: id, tid: tenant });
          payload.iat -= slowS;
          payload.exp -= slowS;
          payload.nbf = payload.iat;
          payload.iss = issuer ?? payload.iss;
        },
      },
    },
  });
  return made.callback();
}

// Entra's own paths, and those of AD FS, which SDKs take for the ones of a tenant of the name `adfs`.
const PATHS = {
  [`/${tenant}/oauth2/v2.0/token`]: "/token",
  [`/${tenant}/discovery/v2.0/keys`]: "/jwks",
  "/adfs/.well-known/openid-configuration": "/.well-known/openid-configuration",
  "/adfs/oauth2/token": "/token",
};

let answer = provider();
const server = createServer({
  cert: readFileSync(settings.certificate),
  key: readFileSync(settings.key),
});
server.on("connection", (socket) => isAway && socket.destroy());
server.on("request", (request, response) => {
  const { pathname, search } = new URL(request.url, origin);
  const path = PATHS[pathname] ?? (pathname.startsWith(mount) ? pathname.slice(mount.length) : "/none");
  request.url = path + search;
  request.originalUrl = mount + request.url;
  answer(request, response);
});

const commands = {
  tokens(id, lifetimeS, slowS, issuer) {
    issued.set(id, { lifetimeS, slowS, issuer });
  },
  rotate() {
    answer = provider();
  },
  away(away) {
    isAway = away;
    if (away) server.closeAllConnections();
  },
  given: (id) => given.get(id),
};

const say = (value) => console.log(JSON.stringify(value ?? {}));
lines.on("line", (line) => {
  const [name, ...values] = JSON.parse(line);
  say(commands[name](...values));
});
lines.on("close", () => process.exit(0));
server.listen(port, "127.0.0.1", say);
