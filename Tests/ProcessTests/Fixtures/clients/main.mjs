// An app for the tests: calls the TypeScript client as an app would, as main.swift beside it calls the Swift one. CLIENT is the
// compiled client.

import { readFileSync, rmSync, writeFileSync } from "node:fs"

const { Entitlements, Failure } = await import(process.env.CLIENT)
const { API, USER_ID, TOKEN, FRESH_TOKEN, FILE, CLOCK, PAUSE, JITTER } = process.env
const [call, ...parameters] = process.argv.slice(2)
const say = (members) => console.log(JSON.stringify(members))
const stepped = ({ step, seconds, restore }) => say({ step, seconds, message: restore?.message ?? undefined })

const client = new Entitlements({
    api: API,
    user: USER_ID,
    token: async (user, isFresh) => (user === USER_ID ? (isFresh ? FRESH_TOKEN : TOKEN) : "another user's") ?? "",
    disk: {
        getItem: () => readFileSync(FILE, "utf8"),
        setItem: (_, text) => writeFileSync(FILE, text),
        removeItem: () => rmSync(FILE, { force: true }),
    },
    language: "en",
    now: () => Date.now() + Number(CLOCK ?? 0) * 1000,
    pause: (seconds) => new Promise((done) => setTimeout(done, seconds * 1000 * Number(PAUSE ?? 1))),
    jitter: JITTER ? () => Number(JITTER) : undefined,
})

const sayAccess = (access) => say({ type: access?.type ?? "none", from_disk: access?.is_from_disk ?? false })
const sayShown = ({ ending, restore }) => say({
    ending: ending ?? "none", outcome: restore?.outcome ?? undefined, key: restore?.message_key ?? undefined,
    message: restore?.message ?? undefined, reference: restore?.reference,
    products: restore?.products.map((product) => product.product_id),
})

try {
    switch (call) {
        case "entitlement": sayAccess(await client.entitlement()); break
        case "last": sayAccess(await client.lastAnswer()); break
        case "sign-out": {
            const asked = client.entitlement()
            await new Promise((done) => setTimeout(done, 500))
            await client.forget()
            sayAccess(await asked)
            sayAccess(await client.lastAnswer())
            break
        }
        case "restore":
            sayShown(await client.restore(JSON.parse(parameters[0]), { clientError: parameters[1], onStep: stepped }))
            break
        case "purchase":
            sayShown(await client.afterPurchase({ store: "app_store", kind: "storekit_jws", value: parameters[0] }, stepped))
            break
        case "ticket": {
            const ticket = await client.ticket()
            say({
                state: ticket?.state ?? "none", question: ticket?.question ?? undefined, message: ticket?.message,
                reference: ticket?.reference ?? undefined,
            })
            break
        }
        case "reply": say({ message: await client.reply(await client.ticket(), parameters[0]) }); break
        default: process.exit(64)
    }
} catch (failure) {
    if (!(failure instanceof Failure)) throw failure
    say({ failure: failure.kind, seconds: failure.retryAfterSeconds, type: failure.problem?.type, field: failure.problem?.field })
}
