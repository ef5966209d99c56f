// What an app asks entitlement-sync: what the user has, Restore, the proof of a new purchase, cases with support.
// For browsers and Node, and for React Native where it has crypto.randomUUID; no dependencies.

export interface Proof { store: "app_store" | "google_play" | "onside"; kind: string; value: string }

export interface Entitlement {
    id: string | null; store: string | null; source: string | null; product_id: string | null
    ends_at: string | null; will_renew: boolean | null
}

/** What the user has. `is_from_disk`: there was no answer, and this is the last one. */
export interface Access {
    type: "free" | "subscriber"; until: string | null; restore_suggested: boolean; entitlements?: Entitlement[]
    stores: { store: string; state: "ok" | "slow" | "down"; message: string | null }[]
    is_from_disk?: boolean
}

export interface Product { store: string; product_id: string | null; entitlements: string[]; ends_at: string | null }

export interface Restore {
    id: string; reference: string; state: "queued" | "running" | "done" | "dead" | "canceled"
    outcome: string | null; message_key: string | null; message: string | null; products: Product[]
    estimated_wait_s: number | null
}

export interface Ticket {
    id: string; role: "claimant" | "owner"; reference: string | null; state: "open" | "question" | "decided"
    created_at: string; question: string | null; question_id: string | null; asked_at: string | null
    answer_by: string | null; store: string | null; product_id: string | null; message: string
}

export interface Problem { type: string; status: number; title?: string; detail?: string; field?: string; fix?: string }

/** How a restore ends for a person. */
export type Ending = "unlocked" | "nothing" | "tryAgain" | "support"

const endings: Record<string, Ending> = {
    restored: "unlocked", already_subscriber: "unlocked", nothing_to_restore: "nothing",
    store_unavailable: "tryAgain", store_account_mismatch: "support", not_eligible: "support",
}

/** What to show: `restore.message` where there is one, else the app's own words. `ending` null: it is still being checked. */
export interface Shown { ending: Ending | null; restore: Restore | null }

/** For a spinner. It stops at `still_checking`, where the person goes on and so does the restore, and at the end. */
export type Step = { step: "sending" | "checking" } | { step: "waiting"; seconds: number }
    | { step: "still_checking"; restore: Restore }

/**
 * `no_answer`: no connection, or none after all tries; `retryAfterSeconds`: the pause that was due when it gave up. `sign_in`: a
 * fresh token was not taken either. `refused`: for the developer.
 */
export class Failure extends Error {
    constructor(
        readonly kind: "no_answer" | "sign_in" | "refused", readonly retryAfterSeconds?: number, readonly problem?: Problem,
    ) {
        super(kind)
    }
}

/** Where the last answer is kept: `localStorage`, AsyncStorage, a file. */
export interface Disk {
    getItem(key: string): string | null | Promise<string | null>
    setItem(key: string, text: string): unknown
    removeItem(key: string): unknown
}

export interface Settings {
    /** Where the routes begin: `https://api.example.com/v1`, or `…/v1/apps/NAME`. */
    api: string
    /** The signed-in user's id; the answer on disk counts for this user alone. */
    user: string
    /**
     * Gives a user's sign-in token, or fails where another user is signed in by now; `true` asks for a fresh one (Firebase:
     * `user.getIdToken(true)`).
     */
    token(user: string, isFresh: boolean): Promise<string>
    disk: Disk
    language?: string
    now?(): number
    pause?(seconds: number): Promise<void>
    /** The share by which a pause is longer, so that not all devices come back at once: up to a quarter. */
    jitter?(): number
}

/** The longest time that the answer on disk is shown without a new one, in ms: three days. */
const longestOffline = 259_200_000
/** The pauses before a request is sent again, in seconds, unless the answer names one. */
const pauses = [1, 2, 4, 8]
/** A longer `Retry-After` is not waited for in front of a person. */
const longestPause = 60
/** How often a restore is asked for, 20 s each, before the app lets it go on without waiting. */
const polls = 6
const place = "entitlement-sync"

/** What follows a status: the table "Errors and limits" in entitlement-sync's http.md. */
function next(status: number | null): "done" | "freshToken" | "waitAsAsked" | "again" | "refused" {
    if (status === null || [408, 500, 502, 504].includes(status)) return "again"
    if (status >= 200 && status < 300) return "done"
    if (status === 401) return "freshToken"
    if (status === 429 || status === 503) return "waitAsAsked"
    return status > 500 ? "again" : "refused"
}

export class Entitlements {
    constructor(private readonly settings: Settings) {}

    /** Counts sign-outs: an answer that was asked for before one is not written down after it. */
    private generation = 0
    private writes: Promise<unknown> = Promise.resolve()

    private now = () => this.settings.now?.() ?? Date.now()
    private pause = (seconds: number) =>
        this.settings.pause?.(seconds) ?? new Promise<void>((done) => setTimeout(done, seconds * 1000))

    /** Asks what the user has; without an answer it is the one on disk, as long as that is shown. Throws `Failure`. */
    async entitlement(): Promise<Access> {
        const generation = this.generation
        try {
            const access = await this.send<Access>("GET", "/entitlement", undefined, undefined, 2, true)
            const kept = JSON.stringify({ user: this.settings.user, at: this.now(), answer: access })
            this.writes = this.writes.then(async () => {
                if (generation !== this.generation) return
                try { await this.settings.disk.setItem(place, kept) } catch { /* The answer is returned all the same. */ }
            })
            await this.writes
            return access
        } catch (failure) {
            const last = failure instanceof Failure && failure.kind === "no_answer" ? await this.lastAnswer() : null
            if (last) return last
            throw failure
        }
    }

    /** The answer on disk, at once: until its `until`, at most three days, and not by a clock that was set back. */
    async lastAnswer(): Promise<Access | null> {
        try {
            const kept = JSON.parse((await this.settings.disk.getItem(place)) ?? "null")
            const [now, access] = [this.now(), kept?.answer as Access]
            const age = now - kept?.at
            const isOver = (end: string | null) => end !== null && !(now < Date.parse(end))
            if (kept?.user !== this.settings.user || !(age >= -300_000 && age <= longestOffline) || isOver(access.until)) return null
            return { ...access, entitlements: access.entitlements?.filter((one) => !isOver(one.ends_at)), is_from_disk: true }
        } catch { return null }
    }

    /** Forgets the answer on disk, as at sign-out; one that is under way is not kept either. */
    async forget(): Promise<void> {
        this.generation++
        const removed = this.writes.then(() => this.settings.disk.removeItem(place))
        this.writes = removed.catch(() => {})
        await removed
    }

    /**
     * Sends the proof of a new purchase: the same call as Restore. Finish the transaction where the ending is `unlocked` and
     * `restore.products` has its product.
     */
    afterPurchase(proof: Proof, onStep?: (step: Step) => void): Promise<Shown> {
        return this.restore([proof], { origin: "paywall", onStep })
    }

    /**
     * Restores with what the device can show: sends the first 20 proofs. `clientError`: the name or code of the store library's
     * error, never its text. Throws `Failure` `sign_in` and `refused`; an outage ends in `tryAgain`, or in null once the
     * restore was taken.
     */
    async restore(
        proofs: Proof[] = [],
        more: { clientError?: string; origin?: "profile" | "paywall"; onStep?: (step: Step) => void } = {},
    ): Promise<Shown> {
        const onStep = more.onStep ?? (() => {})
        let restore: Restore | null = null
        try {
            onStep({ step: "sending" })
            const body = { proofs: proofs.slice(0, 20), client_error: more.clientError, origin: more.origin ?? "profile" }
            let seen = (restore = await this.send<Restore>("POST", "/restores", body, onStep))
            onStep({ step: "checking" })
            const hasEnded = () => ["done", "dead", "canceled"].includes(seen.state)
            for (let poll = 0; poll < polls && !hasEnded(); poll++) {
                if (poll > 0) await this.pause(1)
                seen = restore = await this.send<Restore>("GET", `/restores/${seen.id}?wait=25`, undefined, onStep)
                if (seen.message_key === "still_checking") onStep({ step: "still_checking", restore: seen })
            }
            const ending = hasEnded() ? endings[seen.outcome ?? ""] ?? "tryAgain" : null
            // What was unlocked is on disk before the person reads of it.
            if (ending === "unlocked") await this.entitlement().catch(() => null)
            return { ending, restore }
        } catch (failure) {
            // Once it was taken it goes on, whether it can be asked for or not.
            if (failure instanceof Failure && failure.kind === "no_answer") return { ending: restore ? null : "tryAgain", restore }
            throw failure
        }
    }

    /** The user's cases with support, those first in which an answer is awaited. */
    async tickets(): Promise<Ticket[]> {
        const { tickets } = await this.send<{ tickets: Ticket[] }>("GET", "/tickets")
        return [...tickets.filter((one) => one.state === "question"), ...tickets.filter((one) => one.state !== "question")]
    }

    /** The case to show. */
    async ticket(): Promise<Ticket | null> { return (await this.tickets())[0] ?? null }

    /** Answers a question; an owner's `decision` is `object` or `agree`. Gives the text to show. */
    async reply(ticket: Ticket, text?: string, decision?: "object" | "agree"): Promise<string> {
        const body = { text, decision, question_id: decision === "agree" ? ticket.question_id : undefined }
        return (await this.send<{ message: string }>("POST", `/tickets/${ticket.id}/replies`, body)).message
    }

    /** Gives the owner's purchase to their other account, whose app shows the reference. Gives the text to show. */
    async release(reference: string): Promise<string> {
        return (await this.send<{ message: string }>("POST", "/releases", { reference })).message
    }

    /** Sends a request, and again as the table says, always under the same idempotency key. */
    private async send<Answer>(
        method: "GET" | "POST", path: string, body?: object, onStep?: (step: Step) => void, tries = pauses.length + 1,
        mayAnswerFromDisk = false,
    ): Promise<Answer> {
        const headers: Record<string, string> = body
            ? { "Content-Type": "application/json", "Idempotency-Key": crypto.randomUUID() } : {}
        if (this.settings.language) headers["Accept-Language"] = this.settings.language
        for (let attempt = 1, asksFresh = false, wasRenewed = false; ; attempt++) {
            let answer: Response | null = null
            let text = ""
            const limit = new AbortController()
            const timer = setTimeout(() => limit.abort(), 35_000)
            try {
                headers.Authorization = "Bearer " + (await this.settings.token(this.settings.user, asksFresh))
                asksFresh = false
                const request = { method, headers, body: body && JSON.stringify(body), signal: limit.signal }
                answer = await fetch(this.settings.api + path, request)
                text = await answer.text()
            } catch { answer = null } finally { clearTimeout(timer) }
            // Not an answer of the service but of a proxy: what is on disk is shown in its place.
            const isProblem = answer?.headers.get("Content-Type")?.startsWith("application/problem+json") ?? false
            let wait = pauses[Math.min(attempt, pauses.length) - 1]!
            switch (next(answer && answer.status)) {
                case "done":
                    // A page of a proxy is no answer.
                    try { return JSON.parse(text) } catch { throw new Failure("no_answer") }
                case "refused": {
                    if (mayAnswerFromDisk && !isProblem) throw new Failure("no_answer")
                    let problem: Problem = { type: "", status: answer!.status }
                    try { problem = JSON.parse(text) } catch { /* The status says it. */ }
                    throw new Failure("refused", undefined, problem)
                }
                case "freshToken":
                    if (wasRenewed) throw new Failure(mayAnswerFromDisk && !isProblem ? "no_answer" : "sign_in")
                    asksFresh = wasRenewed = true
                    attempt--
                    continue
                case "waitAsAsked": {
                    const asked = Number(answer!.headers.get("Retry-After") ?? NaN)
                    wait = Math.max(1, Number.isNaN(asked) ? wait : asked)
                }
            }
            if (attempt >= tries || wait > longestPause) throw new Failure("no_answer", wait)
            wait *= 1 + (this.settings.jitter?.() ?? Math.random() / 4)
            onStep?.({ step: "waiting", seconds: wait })
            await this.pause(wait)
        }
    }
}
