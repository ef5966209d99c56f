// What an app asks entitlement-sync: what the user has, Restore, the proof of a new purchase, cases with support.
// For Android (API 26) with kotlinx-coroutines and com.android.billingclient:billing-ktx 8.

package entitlementsync

import com.android.billingclient.api.BillingClient
import com.android.billingclient.api.BillingClient.BillingResponseCode
import com.android.billingclient.api.BillingClient.ProductType
import com.android.billingclient.api.Purchase
import com.android.billingclient.api.QueryPurchasesParams
import com.android.billingclient.api.queryPurchasesAsync
import java.io.File
import java.io.IOException
import java.net.HttpURLConnection
import java.net.URL
import java.time.DateTimeException
import java.time.Instant
import java.util.Locale
import java.util.UUID
import kotlin.random.Random
import kotlinx.coroutines.CancellationException
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.delay
import kotlinx.coroutines.withContext
import org.json.JSONArray
import org.json.JSONException
import org.json.JSONObject

data class Proof(val store: String, val kind: String, val value: String)

/** Something that gives access now. */
class Entitlement(json: JSONObject) {
    val id = json.text("id")
    val store = json.text("store")
    val source = json.text("source")
    val productId = json.text("product_id")
    val endsAt = json.time("ends_at")
    val willRenew = if (json.isNull("will_renew")) null else json.getBoolean("will_renew")
}

class StoreState(json: JSONObject) {
    val store: String = json.getString("store")
    val state: String = json.getString("state")
    val message = json.text("message")
}

/** What the user has; `type` is `free` or `subscriber`. `isFromDisk`: there was no answer, and this is the last one. */
class Access(json: JSONObject, val isFromDisk: Boolean = false, now: Instant = Instant.MIN) {
    val type: String = json.getString("type")
    val until = json.time("until")
    val restoreSuggested = json.getBoolean("restore_suggested")
    val entitlements = (json.optJSONArray("entitlements")?.list(::Entitlement) ?: emptyList())
        .filter { it.endsAt?.isAfter(now) != false }
    val stores = json.getJSONArray("stores").list(::StoreState)
}

class Product(json: JSONObject) {
    val store: String = json.getString("store")
    val productId = json.text("product_id")
    val entitlements = json.getJSONArray("entitlements").let { list -> List(list.length()) { list.getString(it) } }
    val endsAt = json.time("ends_at")
}

class Restore(json: JSONObject) {
    val id: String = json.getString("id")
    val reference: String = json.getString("reference")
    val state: String = json.getString("state")
    val outcome = json.text("outcome")
    val messageKey = json.text("message_key")
    val message = json.text("message")
    val products = json.getJSONArray("products").list(::Product)
    val estimatedWaitSeconds = if (json.isNull("estimated_wait_s")) null else json.getInt("estimated_wait_s")
    val hasEnded get() = state in setOf("done", "dead", "canceled")
    val ending get() = if (hasEnded) endings[outcome] ?: Ending.TRY_AGAIN else null
}

/** `role`: `claimant` or `owner`; `state`: `open`, `question` or `decided`. */
class Ticket(json: JSONObject) {
    val id: String = json.getString("id")
    val role: String = json.getString("role")
    val reference = json.text("reference")
    val state: String = json.getString("state")
    val createdAt = json.time("created_at")
    val question = json.text("question")
    val questionId = json.text("question_id")
    val askedAt = json.time("asked_at")
    val answerBy = json.time("answer_by")
    val store = json.text("store")
    val productId = json.text("product_id")
    val message: String = json.getString("message")
}

/** How a restore ends for a person. */
enum class Ending { UNLOCKED, NOTHING, TRY_AGAIN, SUPPORT }

private val endings = mapOf(
    "restored" to Ending.UNLOCKED, "already_subscriber" to Ending.UNLOCKED, "nothing_to_restore" to Ending.NOTHING,
    "store_unavailable" to Ending.TRY_AGAIN, "store_account_mismatch" to Ending.SUPPORT, "not_eligible" to Ending.SUPPORT,
)

/** What to show: `restore.message` where there is one, else the app's own words. `ending` null: it is still being checked. */
class Shown(val ending: Ending?, val restore: Restore?)

/** For a spinner. It stops at [StillChecking], where the person goes on and so does the restore, and at the end. */
sealed class Step {
    object AskingStore : Step()
    object Sending : Step()
    object Checking : Step()
    class Waiting(val seconds: Double) : Step()
    class StillChecking(val restore: Restore) : Step()
}

sealed class Failure(text: String) : Exception(text) {
    /** No connection, or no answer after all tries. `retryAfterSeconds`: the pause that was due when it gave up. */
    class NoAnswer(val retryAfterSeconds: Double? = null) : Failure("no answer")
    /** A fresh token was not taken either. */
    class SignIn : Failure("sign in")
    /** The request has to change; for the developer. */
    class Refused(val status: Int, val type: String, val field: String?, val fix: String?) : Failure("$status $type $field")
}

/**
 * `api`: where the routes begin, `https://api.example.com/v1` or `…/v1/apps/NAME`. `user`: the signed-in user's id; the answer in
 * `file` counts for this user alone. `token`: gives a user's sign-in token, or fails where another user is signed in by now; `true` asks for a
 * fresh one (Firebase: `getIdToken(true)`). `jitter`: the share by which a pause is longer, so that not all devices come back at once.
 */
class Entitlements(
    private val api: String,
    private val user: String,
    private val file: File,
    private val language: String = Locale.getDefault().toLanguageTag(),
    private val now: () -> Instant = Instant::now,
    private val pause: suspend (seconds: Double) -> Unit = { delay((it * 1000).toLong()) },
    private val jitter: () -> Double = { Random.nextDouble(0.25) },
    private val token: suspend (user: String, isFresh: Boolean) -> String,
) {
    /** Counts sign-outs: an answer that was asked for before one is not written down after it. */
    @Volatile private var generation = 0

    /** Asks what the user has; without an answer it is the one on disk, as long as that is shown. Throws [Failure]. */
    suspend fun entitlement(): Access {
        val asked = generation
        return try {
            val answer = send("GET", "/entitlement", tries = 2, mayAnswerFromDisk = true)
            val access = read(answer, ::Access)
            keep(answer, asked)
            access
        } catch (failure: Failure.NoAnswer) {
            lastAnswer() ?: throw failure
        }
    }

    /** The answer on disk, at once: until its `until`, at most three days, and not by a clock that was set back. */
    fun lastAnswer(): Access? = try {
        val kept = JSONObject(file.readText())
        val access = Access(kept.getJSONObject("answer"), isFromDisk = true, now())
        val age = now().toEpochMilli() - kept.getLong("at")
        access.takeIf {
            kept.getString("user") == user && age in -300_000..LONGEST_OFFLINE_MS && it.until?.isAfter(now()) != false
        }
    } catch (_: IOException) { null } catch (_: JSONException) { null } catch (_: DateTimeException) { null }

    @Synchronized private fun keep(answer: String, asked: Int) {
        if (asked != generation) return
        val kept = JSONObject().put("user", user).put("at", now().toEpochMilli()).put("answer", JSONObject(answer))
        // If it can't be written, the answer is returned all the same.
        val whole = try { File.createTempFile("access", ".new", file.absoluteFile.parentFile) } catch (_: IOException) { return }
        try { whole.writeText(kept.toString()); whole.renameTo(file) } catch (_: IOException) {} finally { whole.delete() }
    }

    /** Forgets the answer on disk, as at sign-out; one that is under way is not kept either. */
    @Synchronized fun forget() {
        generation += 1
        file.delete()
    }

    /** Sends the proof of a new purchase: the same call as Restore. */
    suspend fun afterPurchase(proof: Proof, onStep: (Step) -> Unit = {}): Shown =
        restore(listOf(proof), origin = "paywall", onStep = onStep)

    /**
     * Restores with what the device can show: sends the first 20 proofs. `clientError`: the name of the store library's error,
     * never its text. Throws [Failure.SignIn] and [Failure.Refused]; an outage ends in [Ending.TRY_AGAIN], or in null once the
     * restore was taken.
     */
    suspend fun restore(
        proofs: List<Proof>, clientError: String? = null, origin: String = "profile", onStep: (Step) -> Unit = {},
    ): Shown {
        var restore: Restore? = null
        try {
            onStep(Step.Sending)
            val list = JSONArray(proofs.take(20).map {
                JSONObject().put("store", it.store).put("kind", it.kind).put("value", it.value)
            })
            val body = JSONObject().put("proofs", list).put("client_error", clientError).put("origin", origin)
            var seen = read(send("POST", "/restores", body, onStep), ::Restore)
            restore = seen
            onStep(Step.Checking)
            for (poll in 0 until POLLS) {
                if (seen.hasEnded) break
                if (poll > 0) pause(1.0)
                seen = read(send("GET", "/restores/${seen.id}?wait=25", null, onStep), ::Restore)
                restore = seen
                if (seen.messageKey == "still_checking") onStep(Step.StillChecking(seen))
            }
            // What was unlocked is on disk before the person reads of it.
            if (seen.ending == Ending.UNLOCKED) try { entitlement() } catch (_: Failure) {}
            return Shown(seen.ending, seen)
        } catch (_: Failure.NoAnswer) {
            // Once it was taken it goes on, whether it can be asked for or not.
            return Shown(if (restore == null) Ending.TRY_AGAIN else null, restore)
        }
    }

    /** The user's cases with support, those first in which an answer is awaited. */
    suspend fun tickets(): List<Ticket> =
        read(send("GET", "/tickets")) { it.getJSONArray("tickets").list(::Ticket) }.sortedBy { it.state != "question" }

    /** The case to show. */
    suspend fun ticket(): Ticket? = tickets().firstOrNull()

    /** Answers a question; an owner's `decision` is `object` or `agree`. Gives the text to show. */
    suspend fun reply(ticket: Ticket, text: String? = null, decision: String? = null): String {
        val body = JSONObject().put("text", text).put("decision", decision)
        if (decision == "agree") body.put("question_id", ticket.questionId)
        return read(send("POST", "/tickets/${ticket.id}/replies", body)) { it.getString("message") }
    }

    /** Gives the owner's purchase to their other account, whose app shows the reference. Gives the text to show. */
    suspend fun release(reference: String): String =
        read(send("POST", "/releases", JSONObject().put("reference", reference))) { it.getString("message") }

    // Requests

    private enum class Next { DONE, FRESH_TOKEN, WAIT_AS_ASKED, AGAIN, REFUSED }

    /** What follows a status: the table "Errors and limits" in entitlement-sync's http.md. */
    private fun next(status: Int?) = when (status) {
        null, 408, 500, 502, 504 -> Next.AGAIN
        in 200..299 -> Next.DONE
        401 -> Next.FRESH_TOKEN
        429, 503 -> Next.WAIT_AS_ASKED
        in 501..599 -> Next.AGAIN
        else -> Next.REFUSED
    }

    private class Answer(val status: Int, val text: String, val retryAfter: Double?, val isProblem: Boolean)

    /** Sends a request, and again as the table says, always under the same idempotency key. */
    private suspend fun send(
        method: String, path: String, body: JSONObject? = null, onStep: (Step) -> Unit = {}, tries: Int = PAUSES.size + 1,
        mayAnswerFromDisk: Boolean = false,
    ): String {
        val key = UUID.randomUUID().toString()
        var attempt = 0
        var asksFresh = false
        var wasRenewed = false
        while (true) {
            val answer = try {
                val bearer = token(user, asksFresh)
                asksFresh = false
                withContext(Dispatchers.IO) { ask(method, path, body, key, bearer) }
            } catch (cancelled: CancellationException) { throw cancelled } catch (_: Exception) { null }
            // Not an answer of the service but of a proxy: what is on disk is shown in its place.
            val isNoWord = mayAnswerFromDisk && answer?.isProblem != true
            var wait = PAUSES[minOf(attempt, PAUSES.size - 1)]
            when (next(answer?.status)) {
                Next.DONE -> return answer?.text ?: ""
                Next.REFUSED -> {
                    if (isNoWord) throw Failure.NoAnswer()
                    val problem = try { JSONObject(answer?.text ?: "") } catch (_: JSONException) { JSONObject() }
                    throw Failure.Refused(answer?.status ?: 0, problem.optString("type"), problem.text("field"), problem.text("fix"))
                }
                Next.FRESH_TOKEN -> {
                    if (wasRenewed) throw if (isNoWord) Failure.NoAnswer() else Failure.SignIn()
                    asksFresh = true
                    wasRenewed = true
                    continue
                }
                Next.WAIT_AS_ASKED -> wait = maxOf(1.0, answer?.retryAfter ?: wait)
                Next.AGAIN -> {}
            }
            attempt += 1
            if (attempt >= tries || wait > LONGEST_PAUSE) throw Failure.NoAnswer(wait)
            wait *= 1 + jitter()
            onStep(Step.Waiting(wait))
            pause(wait)
        }
    }

    private fun ask(method: String, path: String, body: JSONObject?, key: String, bearer: String): Answer {
        val connection = URL(api + path).openConnection() as HttpURLConnection
        try {
            connection.requestMethod = method
            connection.connectTimeout = 10_000
            connection.readTimeout = 35_000
            connection.setRequestProperty("Authorization", "Bearer $bearer")
            connection.setRequestProperty("Accept-Language", language)
            if (body != null) {
                connection.doOutput = true
                connection.setRequestProperty("Content-Type", "application/json")
                connection.setRequestProperty("Idempotency-Key", key)
                connection.outputStream.use { it.write(body.toString().toByteArray()) }
            }
            val status = connection.responseCode
            val stream = if (status < 400) connection.inputStream else connection.errorStream
            val text = stream?.bufferedReader()?.use { it.readText() } ?: ""
            val isProblem = connection.contentType?.startsWith("application/problem+json") == true
            return Answer(status, text, connection.getHeaderField("Retry-After")?.toDoubleOrNull(), isProblem)
        } finally {
            connection.disconnect()
        }
    }

    // A page of a proxy is no answer.
    private fun <Value> read(text: String, make: (JSONObject) -> Value): Value =
        try { make(JSONObject(text)) } catch (_: JSONException) { throw Failure.NoAnswer() } catch (_: DateTimeException) {
            throw Failure.NoAnswer()
        }

    companion object {
        /** The longest time that the answer on disk is shown without a new one: three days. */
        const val LONGEST_OFFLINE_MS = 259_200_000L
        /** The pauses before a request is sent again, in seconds, unless the answer names one. */
        private val PAUSES = listOf(1.0, 2.0, 4.0, 8.0)
        /** A longer `Retry-After` is not waited for in front of a person. */
        private const val LONGEST_PAUSE = 60.0
        /** How often a restore is asked for, 20 s each, before the app lets it go on without waiting. */
        private const val POLLS = 6
    }
}

// Google Play

/**
 * A tap on Restore: asks Google Play for what is on the device, then restores. With RevenueCat, `other` is its restore, and gives
 * the name of its error: `{ try { Purchases.sharedInstance.awaitRestore(); null } catch (e: PurchasesException) { e.code.name } }`.
 */
suspend fun Entitlements.restore(
    billing: BillingClient, other: suspend () -> String? = { null }, onStep: (Step) -> Unit = {},
): Shown {
    onStep(Step.AskingStore)
    var clientError = other()
    val proofs = listOf(ProductType.SUBS, ProductType.INAPP).flatMap { type ->
        val found = billing.queryPurchasesAsync(QueryPurchasesParams.newBuilder().setProductType(type).build())
        // By its name: the numbers of two libraries mean different things.
        if (found.billingResult.responseCode != BillingResponseCode.OK) clientError = clientError ?: "service_unavailable"
        found.purchasesList.map { Proof("google_play", "purchase_token", it.purchaseToken) }
    }
    return restore(proofs, clientError, onStep = onStep)
}

/** After a purchase, from `PurchasesUpdatedListener`. A worker acknowledges what it granted. */
suspend fun Entitlements.afterPurchase(purchase: Purchase, onStep: (Step) -> Unit = {}): Shown =
    afterPurchase(Proof("google_play", "purchase_token", purchase.purchaseToken), onStep)

private fun JSONObject.text(name: String): String? = if (isNull(name)) null else getString(name)
private fun JSONObject.time(name: String): Instant? = text(name)?.let(Instant::parse)
private fun <Value> JSONArray.list(make: (JSONObject) -> Value): List<Value> = List(length()) { make(getJSONObject(it)) }
