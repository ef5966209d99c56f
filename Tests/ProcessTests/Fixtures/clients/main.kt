// An app for the tests: calls the Kotlin client as an app would, as main.swift beside it calls the Swift one.

import entitlementsync.Access
import entitlementsync.Ending
import entitlementsync.Entitlements
import entitlementsync.Failure
import entitlementsync.Proof
import entitlementsync.Shown
import entitlementsync.Step
import java.io.File
import java.time.Instant
import kotlin.random.Random
import kotlin.system.exitProcess
import kotlinx.coroutines.async
import kotlinx.coroutines.delay
import kotlinx.coroutines.runBlocking
import org.json.JSONArray
import org.json.JSONObject

private fun say(vararg members: Pair<String, Any?>) {
    val json = JSONObject()
    for ((name, value) in members) json.put(name, value)
    println(json.toString())
}

private fun stepped(step: Step) = when (step) {
    is Step.AskingStore -> say("step" to "asking_store")
    is Step.Sending -> say("step" to "sending")
    is Step.Checking -> say("step" to "checking")
    is Step.Waiting -> say("step" to "waiting", "seconds" to step.seconds)
    is Step.StillChecking -> say("step" to "still_checking", "message" to step.restore.message)
}

private fun say(access: Access?) = say("type" to (access?.type ?: "none"), "from_disk" to (access?.isFromDisk ?: false))

private fun say(shown: Shown) {
    val names = mapOf(
        Ending.UNLOCKED to "unlocked", Ending.NOTHING to "nothing", Ending.TRY_AGAIN to "tryAgain", Ending.SUPPORT to "support",
    )
    val restore = shown.restore
    say(
        "ending" to (names[shown.ending] ?: "none"), "outcome" to restore?.outcome, "key" to restore?.messageKey,
        "message" to restore?.message, "reference" to restore?.reference,
        "products" to restore?.products?.let { list -> JSONArray(list.map { it.productId }) },
    )
}

private fun setting(name: String): String? = System.getenv(name)

fun main(arguments: Array<String>) = runBlocking {
    val ahead = setting("CLOCK")?.toDouble() ?: 0.0
    val share = setting("PAUSE")?.toDouble() ?: 1.0
    val client = Entitlements(
        api = setting("API") ?: "",
        user = setting("USER_ID") ?: "",
        file = File(setting("FILE") ?: ""),
        language = "en",
        now = { Instant.now().plusMillis((ahead * 1000).toLong()) },
        pause = { delay((it * share * 1000).toLong()) },
        jitter = { setting("JITTER")?.toDouble() ?: Random.nextDouble(0.25) },
        token = { user, isFresh ->
            if (user == setting("USER_ID")) setting(if (isFresh) "FRESH_TOKEN" else "TOKEN") ?: "" else "another user's"
        },
    )
    val first = arguments.getOrNull(1) ?: ""
    try {
        when (arguments[0]) {
            "entitlement" -> say(client.entitlement())
            "last" -> say(client.lastAnswer())
            "sign-out" -> {
                val asked = async { client.entitlement() }
                delay(500)
                client.forget()
                say(asked.await())
                say(client.lastAnswer())
            }
            "restore" -> {
                val list = JSONArray(first)
                val proofs = List(list.length()) { number ->
                    list.getJSONObject(number).let { Proof(it.getString("store"), it.getString("kind"), it.getString("value")) }
                }
                say(client.restore(proofs, arguments.getOrNull(2), onStep = ::stepped))
            }
            "purchase" -> say(client.afterPurchase(Proof("app_store", "storekit_jws", first), ::stepped))
            "ticket" -> {
                val ticket = client.ticket()
                say(
                    "state" to (ticket?.state ?: "none"), "question" to ticket?.question, "message" to ticket?.message,
                    "reference" to ticket?.reference,
                )
            }
            "reply" -> say("message" to client.ticket()?.let { client.reply(it, first) })
            else -> exitProcess(64)
        }
    } catch (failure: Failure) {
        when (failure) {
            is Failure.NoAnswer -> say("failure" to "no_answer", "seconds" to failure.retryAfterSeconds)
            is Failure.SignIn -> say("failure" to "sign_in")
            is Failure.Refused -> say("failure" to "refused", "type" to failure.type, "field" to failure.field)
        }
    }
}
